"""How do commands of a test share one Spark session?"""

from twice.project import Project


def with_session(patch, session):
    """Let every project that is opened use this session."""
    opened = Project.open.__func__

    def open_with(cls, folder=None, *, spark=None, **settings):
        return opened(cls, folder, spark=spark or session, **settings)

    patch.setattr(Project, "open", classmethod(open_with))
