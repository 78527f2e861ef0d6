"""K-mers: counting, building and classifying beside the programs that biologists use."""
