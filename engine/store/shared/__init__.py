"""Tables that several drivers on a server work by."""
