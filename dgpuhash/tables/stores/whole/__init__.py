"""Operations on whole tables: read their contents, number all keys."""
