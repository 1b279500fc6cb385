"""What the parties of a federation have agreed on: the federation file, and the party files."""
