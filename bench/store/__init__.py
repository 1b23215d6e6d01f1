"""The store: side by side with etcd (``store``), and with much in it (``store-size``). Both speak etcd's API."""
