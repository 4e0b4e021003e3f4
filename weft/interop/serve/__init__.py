"""Programs as a service over HTTP: `weft serve`."""
