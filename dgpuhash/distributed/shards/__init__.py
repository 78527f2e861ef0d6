"""What one worker owns, and the plugin that holds it."""
