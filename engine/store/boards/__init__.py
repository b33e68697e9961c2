"""What is known of the boards that measured, and the rows of those that are not believed."""
