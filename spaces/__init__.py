"""Search spaces, one public file a space."""
