"""The registry of tasks."""

from seq2seq.config.registry import Registry
from seq2seq.tasks.translation import TranslationTask
from seq2seq.training.task import Task

# A new task is one class, one line here, and a file in conf/ if it has settings of its own.
TASKS: Registry[type[Task]] = Registry("task", {"translation": TranslationTask})
