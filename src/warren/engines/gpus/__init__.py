"""GPUs of this host, described by CDI."""
