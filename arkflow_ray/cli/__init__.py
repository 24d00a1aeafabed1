"""The command line: parse, call, print. What a command needs is imported when it is called."""
