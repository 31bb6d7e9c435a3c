"""Other systems' names for what sooner has, built on its public names only. Nothing is active by itself."""
