"""A grammar that derives German and English sentences together, with their word alignment.

Modules, from words to sentences:

    lexicon, verbs      words and the contexts in which they make sense
    phrase              bilingual phrases whose words are linked to their translations
    nominal, clause     noun phrases and clauses; deterministic
    words, speaker      random choice of words and clauses that make sense together
    scene               a clause whose word order is still open
    state, question     clauses that describe a state, and questions
    sentence            whole sentences
"""
