"""Add the page to the dashboard of a running scheduler."""

from __future__ import annotations

from typing import Any

PATH = "/dgpuhash"


def add_page(dask_scheduler: Any) -> bool:
    """Add the page to a scheduler's dashboard, once; return whether it is there.

    Without a dashboard, or without Bokeh, there is none to add it to, and nothing is imported.
    Runs on the scheduler's event loop.
    """
    http: Any = getattr(dask_scheduler, "http_application", None)
    # Applications of Bokeh's; there may be others, such as Jupyter's.
    served = [each for each in getattr(http, "applications", ()) if hasattr(each, "app_paths")]
    if not served:
        return False
    if any(PATH in each.app_paths for each in served):
        return True
    # Dask has imported all of it for its own pages.
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    from dgpuhash.distributed.dashboard.page import page_doc

    variables, prefix = template_variables(dask_scheduler), served[0].prefix
    application = BokehApplication(
        {PATH: page_doc}, dask_scheduler, prefix=prefix, template_variables=variables
    )
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # All pages share this list for the links at their top.
    variables["pages"].append(PATH.strip("/"))
    return True
