"""The public names of tf.data, by object: ``dir()`` in TensorFlow 2.21."""

PUBLIC: dict[str, str] = {
    "data": """
        AUTOTUNE Dataset DatasetSpec FixedLengthRecordDataset INFINITE_CARDINALITY Iterator
        IteratorSpec NumpyIterator Options TFRecordDataset TextLineDataset ThreadingOptions
        UNKNOWN_CARDINALITY experimental
    """,
    "data.experimental": """
        AUTOTUNE AutoShardPolicy AutotuneAlgorithm AutotuneOptions Counter CsvDataset
        DatasetInitializer DistributeOptions ExternalStatePolicy INFINITE_CARDINALITY
        OptimizationOptions Optional RandomDataset Reducer SHARD_HINT ServiceOptions SqlDataset
        TFRecordWriter ThreadingOptions UNKNOWN_CARDINALITY assert_cardinality at
        bucket_by_sequence_length cardinality choose_from_datasets copy_to_device
        dense_to_ragged_batch dense_to_sparse_batch distributed_save enable_debug_mode
        enumerate_dataset from_list from_variant get_model_proto get_next_as_optional
        get_single_element get_structure group_by_reducer group_by_window ignore_errors
        index_table_from_dataset load make_batched_features_dataset make_csv_dataset
        make_saveable_from_iterator map_and_batch pad_to_cardinality parallel_interleave
        parse_example_dataset prefetch_to_device rejection_resample sample_from_datasets save
        scan service shuffle_and_repeat snapshot table_from_dataset take_while to_variant
        unbatch unique
    """,
    "data.experimental.service": """
        CrossTrainerCache DispatchServer DispatcherConfig ShardingPolicy WorkerConfig
        WorkerServer distribute from_dataset_id register_dataset
    """,
    "data.Dataset": """
        apply as_numpy_iterator batch bucket_by_sequence_length cache cardinality
        choose_from_datasets concatenate counter element_spec enumerate filter fingerprint
        flat_map from_generator from_tensor_slices from_tensors get_single_element
        group_by_window ignore_errors interleave list_files load map options padded_batch
        prefetch ragged_batch random range rebatch reduce rejection_resample repeat
        sample_from_datasets save scan shard shuffle skip snapshot sparse_batch take take_while
        unbatch unique window with_options zip
    """,
    "data.Iterator": """
        element_spec get_next get_next_as_optional
    """,
    "data.NumpyIterator": """
        next restore save
    """,
    "data.Options": """
        autotune dataset_name deterministic experimental_deterministic experimental_distribute
        experimental_external_state_policy experimental_optimization experimental_service
        experimental_slack experimental_symbolic_checkpoint experimental_threading
        experimental_warm_start framework_type merge threading
    """,
    "data.ThreadingOptions": """
        max_intra_op_parallelism private_threadpool_size
    """,
    "data.experimental.AutotuneOptions": """
        autotune_algorithm cpu_budget enabled initial_parallelism min_parallelism ram_budget
    """,
    "data.experimental.DistributeOptions": """
        auto_shard_policy num_devices
    """,
    "data.experimental.OptimizationOptions": """
        apply_default_optimizations filter_fusion filter_parallelization inject_prefetch
        map_and_batch_fusion map_and_filter_fusion map_fusion map_parallelization
        noop_elimination parallel_batch seq_interleave_prefetch shuffle_and_repeat_fusion
    """,
    "data.experimental.ServiceOptions": """
        pinned
    """,
    "data.experimental.AutoShardPolicy": """
        OFF AUTO FILE DATA HINT
    """,
    "data.experimental.AutotuneAlgorithm": """
        DEFAULT HILL_CLIMB GRADIENT_DESCENT MAX_PARALLELISM STAGE_BASED
    """,
    "data.experimental.ExternalStatePolicy": """
        WARN IGNORE FAIL
    """,
    "data.experimental.service.ShardingPolicy": """
        OFF DYNAMIC FILE DATA FILE_OR_DATA HINT
    """,
    "data.experimental.service.CrossTrainerCache": """
        trainer_id
    """,
    "data.experimental.service.DispatchServer": """
        join start stop target
    """,
    "data.experimental.service.WorkerServer": """
        join start stop
    """,
    "data.experimental.service.DispatcherConfig": """
        port protocol work_dir fault_tolerant_mode worker_addresses job_gc_check_interval_ms
        job_gc_timeout_ms worker_timeout_ms worker_max_concurrent_snapshots
    """,
    "data.experimental.service.WorkerConfig": """
        dispatcher_address worker_address port protocol heartbeat_interval_ms
        dispatcher_timeout_ms data_transfer_protocol data_transfer_address
    """,
}
