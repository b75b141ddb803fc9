"""What runs inside the ranks of `ttkit run`: the folder is first on their PYTHONPATH, so Python
imports its sitecustomize when it starts.
"""
