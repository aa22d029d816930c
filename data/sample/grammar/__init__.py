"""A grammar that says the same in German and English, and which word translates which.

From words to sentences:

    lexicon, verbs      the words, and what can be said of what
    phrase              words of two languages that know what they translate
    nominal, clause     noun phrases and clauses, without any choice
    words, speaker      words and clauses drawn at random so that they make sense together
    scene               a clause whose order is still open
    state, question     clauses that say how it is, or ask
    sentence            whole sentences
"""
