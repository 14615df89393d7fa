"""Finding, starting and stopping the service that a command talks to."""
