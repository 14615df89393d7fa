"""Operations: declaration, dispatch, authentication, bodies and answers."""
