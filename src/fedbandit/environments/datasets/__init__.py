"""Real data sets as environments: reading with strict checks, preparing as the papers do, caching, replaying.

Nothing is downloaded. scikit-learn is needed to prepare data the first time: pip install 'fedbandit[data]'.
"""
