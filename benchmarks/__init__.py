"""Speed, measured as ratios in one run: these numbers mean something on a shared and noisy machine too."""
