"""Operations of models: attention, caches, experts, norms."""
