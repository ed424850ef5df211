"""Chat prompts: ways of asking, times things to ask about."""

from __future__ import annotations

import random
from typing import Any

from .sides import Side, side_of

_TOPICS = """
recursion|a hash table|a binary search tree|garbage collection|a race condition|a deadlock
an index of a database|a foreign key|a transaction|a message queue|a load balancer
a reverse proxy|a content delivery network|a cache|a memory leak|a stack overflow|a unit test
an integration test|continuous integration|a code review|technical debt|a merge conflict
a git rebase|a feature branch|a container|a virtual machine|an operating system|a file system
a socket|a DNS record|a certificate|public-key encryption|a password hash|two-factor login
an access token|cross-site scripting|an SQL injection|a firewall|a VPN|a web socket
an HTTP status code|a REST interface|GraphQL|JSON|a CSV file|a regular expression|Unicode
time zones|floating-point numbers|big-O notation|quicksort|dynamic programming|a graph search
a priority queue|a linked list|a bloom filter|a compiler|an interpreter|static typing
duck typing|an abstract class|an interface|dependency injection|an event loop|a thread
a coroutine|a semaphore|a lock|immutability|a closure|a decorator|a generator|linear regression
a neural network|overfitting|a decision tree|gradient descent|a confusion matrix
a language model|a vector database|photosynthesis|the water cycle|the tides|an eclipse
the seasons|a rainbow|lightning|an earthquake|a volcano|the ozone layer|a vaccine
the immune system|sleep|memory|the heart|the lungs|inflation|interest rates|a stock|a mortgage
supply and demand|a budget|insurance|a tax return|the printing press|the steam engine
the Silk Road|the Roman roads|the space race|the telegraph|the Renaissance|the first computers
chess openings|marathon training|learning the guitar|growing tomatoes|baking bread|making coffee
cooking rice|fixing a bicycle tyre|planning a holiday|packing a suitcase|learning Spanish
writing a CV|a job interview|giving a talk|a good photograph|saving water at home
""".replace("\n", "|").split("|")
_ASKING = (
    "What is {topic}?",
    "Explain {topic} to a child in a few sentences.",
    "Explain {topic} to a new colleague, with an example.",
    "Give me five facts about {topic}.",
    "What are common mistakes with {topic}?",
    "Write a short paragraph about {topic}.",
    "How do I get started with {topic}? Make a list.",
    "What are the advantages and disadvantages of {topic}?",
    "Write an email to a friend who asked about {topic}.",
    "Write three questions for a quiz on {topic}, with their answers.",
    "Why does {topic} matter?",
    "How would you describe {topic} in one sentence, and then in detail?",
)


def prompts(side: Side, draw: random.Random) -> list[dict[str, Any]]:
    """Every way of asking about every topic of this side, shuffled."""
    topics = [topic for topic in _TOPICS if topic and side_of("topic", topic) == side]
    asked = [way.format(topic=topic) for topic in topics for way in _ASKING]
    draw.shuffle(asked)
    return [{"messages": [{"role": "user", "content": text}]} for text in asked]
