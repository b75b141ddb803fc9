"""Operations on each chip's own shards."""
