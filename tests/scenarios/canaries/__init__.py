"""A scenario with a canary in every credential there is; `credentials` lists them, `test_canaries` tells the story."""
