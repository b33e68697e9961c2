"""The kernel of a row as code, in the forms that people take it in."""
