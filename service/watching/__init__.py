"""The watch side: from what an API server shows to events on the stream, source by source and share by share.
It knows nothing of handlers; what it publishes is a hint, which the workers judge by the live object."""
