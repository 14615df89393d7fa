"""Running something and showing its output: embedded or on a service."""
