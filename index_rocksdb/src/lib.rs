//! index_rocksdb
