// That this file is here lets functions be declared whose bodies are elsewhere (fork_linux.go).
