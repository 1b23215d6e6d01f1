"""Where nodes run: network namespaces of this machine, docker compose, or machines reached by ssh."""
