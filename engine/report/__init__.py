"""What a person, or a program, is shown: progress while it runs, tables when it is done."""
