"""`python -m fullgraph`: the command line, where the script is not on the path."""

from fullgraph.cli import main

if __name__ == "__main__":
    main()
