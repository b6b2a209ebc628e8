"""How do commands of a test share one Spark session, and how does its JVM run?"""

from twice.project import Project

# For a JVM that lives for seconds: a thorough compiler never earns back its time there.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def with_session(patch, session):
    """Let every project that is opened use this session."""
    opened = Project.open.__func__

    def open_with(cls, folder=None, *, spark=None, **settings):
        return opened(cls, folder, spark=spark or session, **settings)

    patch.setattr(Project, "open", classmethod(open_with))
