"""What the surface tells of a watch side: why it is not ready, which of its parts are in trouble, and its numbers.
A source in trouble is shown and leaves the process ready; a cluster that is another one than it was does not."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from service.engine.views.reading import moment
from service.engine.witnesses import until_accepted
from service.watching.replicas import Post
from service.watching.watcher import Watcher
from service.web import ClusterNumbers, Hindrance, SourceNumbers, watching_page


class WatchDuty:
    """Also before there is a watcher."""

    watcher: Watcher | None = None

    def stage(self) -> str:
        if self.watcher is None:
            return "starting"
        if self.watcher.stopping:
            return "stopping"
        return "working" if self.watcher.ready else "starting"

    def hindrances(self) -> list[Hindrance]:
        """A cluster that is refused is one in any case; those that do not answer are only if none does."""
        if self.watcher is None:
            return []
        sites = self.watcher.sites
        found = [
            Hindrance(what=f"cluster {site.name}", why=site.trouble, since=site.since) for site in sites if site.refused
        ]
        if sites and not any(site.up or site.refused for site in sites):
            found += [Hindrance(what=f"cluster {site.name}", why=site.trouble, since=site.since) for site in sites]
        return found

    def problems(self) -> list[Hindrance]:
        """What is wrong with single clusters and sources while the rest goes on."""
        if self.watcher is None:
            return []
        away = [site for site in self.watcher.sites if not site.up]
        found = [Hindrance(what=f"cluster {site.name}", why=site.trouble, since=site.since) for site in away]
        found += [
            Hindrance(
                what=f"cluster {site.name}",
                why=until_accepted(site.name, site.restored.why),
                since=moment(site.restored.at) or site.since,
            )
            for site in self.watcher.sites
            if site.restored
        ]
        found += [
            Hindrance(what=f"source {post.share}", why=post.trouble, since=post.since)
            for post in self.watcher.posts
            if post.trouble
        ]
        return found

    def metrics(self) -> Iterator[Metric]:
        if self.watcher is None:
            return iter(())
        clusters = [ClusterNumbers(site.name, site.up, bool(site.restored)) for site in self.watcher.sites]
        return watching_page([numbers_of(post) for post in self.watcher.posts], clusters)


def numbers_of(post: Post) -> SourceNumbers:
    tally = post.tally
    return SourceNumbers(
        source=post.share.source,
        share=post.share.part,
        held=post.held,
        problem=bool(post.trouble),
        # What another replica watches now is not ours to show.
        owned=tally.owned if post.held else 0,
        listed=tally.listed,
        events=tally.events,
        published=tally.published,
        marked=tally.marked,
        relists=tally.relists,
    )
