"""The dialect of ChatUI's code execution gateway: containers, and programs with files in and out."""
