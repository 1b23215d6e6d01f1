"""Power cuts on real file systems, under real nodes: ``python -m tests.power --filesystem ext4 --cuts 200``."""
