//! Metrics of the node: money, journal, database, Valkey, disk, configuration, process.

use canon::Money;

use crate::exposition::MetricKind::{Counter, Gauge, Histogram};
use crate::exposition::{MetricsWriter, seconds};
use crate::metrics::{CertificateMetrics, DiskMetrics, GatewayMetrics, ReloadMetrics};
use crate::process_stats::ProcessStats;
use crate::scrape::{ScrapedStore, ScrapedValkey, ScrapedValues};

/// Silence of the database from which on it counts as out of reach. Heartbeats are sent every second.
const MAX_STORE_SILENCE_SECONDS: f64 = 5.0;

/// Writes the metrics of the node.
pub(crate) fn write_node(
    metrics: &GatewayMetrics,
    writer: &mut MetricsWriter,
    scraped: &ScrapedValues,
) {
    write_work(metrics, writer, scraped);
    write_money(writer, scraped);
    write_journal(metrics, writer, scraped);
    write_store(metrics, writer, &scraped.store);
    write_valkey(writer, scraped.valkey.as_ref());
    write_disk(writer, &metrics.disk);
    write_configuration(writer, &metrics.reloads, scraped);
    write_certificate(writer, &metrics.certificate);
    write_process(metrics, writer, scraped);
}

fn write_work(metrics: &GatewayMetrics, writer: &mut MetricsWriter, scraped: &ScrapedValues) {
    let ready = u8::from(scraped.is_ready);
    writer.single("portunus_ready", Gauge, "1 while the node accepts calls", ready);
    let running = metrics.running_calls.get();
    writer.single("portunus_running", Gauge, "Calls running", running);
    let open = scraped.connections;
    writer.single("portunus_connections", Gauge, "Open connections of callers", open);
    let refused = scraped.refused_connections;
    let help = "Connections refused because of a limit";
    writer.single("portunus_refused_connections", Counter, help, refused);
    let help = "Work on bodies and replies above 256 KiB that runs";
    writer.single("portunus_large_work_running", Gauge, help, scraped.large_work_running);
    let help = "Work on bodies and replies above 256 KiB that waits for a place";
    writer.single("portunus_large_work_waiting", Gauge, help, scraped.large_work_waiting);
    let help = "Retries that the retry budget of a provider did not allow";
    writer.single("portunus_refused_retries", Counter, help, metrics.refused_retries.get());
    let help = "Reports that were not sent to the collector because the queue was full";
    writer.single("portunus_dropped_reports", Counter, help, scraped.dropped_reports);
    let help = "Log lines that were dropped because standard error was too slow";
    writer.single("portunus_dropped_log_lines", Counter, help, metrics.dropped_log_lines.get());
}

fn write_money(writer: &mut MetricsWriter, scraped: &ScrapedValues) {
    let (holds, held) = scraped.held;
    writer.single("portunus_holds", Gauge, "Calls with a reservation", holds);
    let help = "Nanodollars reserved for running calls";
    writer.single("portunus_held_nanodollars", Gauge, help, held.as_nanos());
    let help = "Settled calls that the database does not have yet";
    writer.single("portunus_unposted_calls", Gauge, help, scraped.unposted_calls);
    writer.single("portunus_leases", Gauge, "Leases of this node", scraped.leases.leases);
    let help = "Nanodollars of the leases of this node, by use";
    let mut family = writer.family("portunus_lease_nanodollars", Gauge, help);
    let parts = [
        ("free", scraped.leases.free),
        ("held", scraped.leases.held),
        ("unposted", scraped.leases.unposted),
    ];
    for (part, amount) in parts {
        family.sample(&[("part", part)], Money::as_nanos(amount));
    }
    let help = "Live nodes on the database";
    writer.single("portunus_nodes", Gauge, help, scraped.nodes);
}

fn write_journal(metrics: &GatewayMetrics, writer: &mut MetricsWriter, scraped: &ScrapedValues) {
    let DiskMetrics { journal_segments, journal_bytes, .. } = &metrics.disk;
    let good = u8::from(scraped.is_journal_good);
    writer.single("portunus_journal_up", Gauge, "1 while the journal can be written", good);
    let help = "Failures to write, sync or remove the journal";
    writer.single("portunus_journal_errors", Counter, help, metrics.journal_errors.get());
    let help = "Damaged files of the journal that are not accepted";
    let damaged = metrics.journal_damaged_files.get();
    writer.single("portunus_journal_damaged_files", Gauge, help, damaged);
    let help = "Segments of the journal that calls may still need";
    writer.single("portunus_journal_segments", Gauge, help, journal_segments.get());
    let help = "Bytes of all files of the journal";
    writer.single("portunus_journal_bytes", Gauge, help, journal_bytes.get());
    let mut family =
        writer.family("portunus_journal_write_seconds", Histogram, "Time of writes of the journal");
    family.histogram(&[], &scraped.journal_writes);
    let mut family =
        writer.family("portunus_journal_sync_seconds", Histogram, "Time of fsync of the journal");
    family.histogram(&[], &scraped.journal_syncs);
}

fn write_store(metrics: &GatewayMetrics, writer: &mut MetricsWriter, store: &ScrapedStore) {
    let ScrapedStore { silence, reads, writes, transactions, refused, unreachable } = store;
    let silence = seconds(silence.to_duration());
    let is_up = u8::from(silence <= MAX_STORE_SILENCE_SECONDS);
    writer.single("portunus_store_up", Gauge, "1 if the database answered lately", is_up);
    let help = "Time since the database answered a heartbeat";
    writer.single("portunus_store_silence_seconds", Gauge, help, silence);
    let help = "Time of accesses to the database, with the wait for a connection";
    let mut family = writer.family("portunus_store_seconds", Histogram, help);
    for (kind, times) in [("read", reads), ("write", writes), ("transaction", transactions)] {
        family.histogram(&[("operation", kind)], times);
    }
    let help = "Statements that the database refused, or that did not reach it";
    let mut family = writer.family("portunus_store_errors", Counter, help);
    for (cause, count) in [("refused", refused), ("unreachable", unreachable)] {
        family.sample(&[("cause", cause)], count);
    }
    let help = "Times that the database went back to an earlier state";
    writer.single("portunus_store_rollbacks", Counter, help, metrics.store_rollbacks.get());
}

fn write_valkey(writer: &mut MetricsWriter, valkey: Option<&ScrapedValkey>) {
    let mut family =
        writer.family("portunus_valkey_up", Gauge, "1 if Valkey answered the last heartbeat");
    if let Some(valkey) = valkey {
        family.sample(&[], u8::from(valkey.is_up));
    }
    let mut family =
        writer.family("portunus_valkey_errors", Counter, "Requests that Valkey did not answer");
    if let Some(valkey) = valkey {
        family.sample(&[], valkey.failed);
    }
    let mut family =
        writer.family("portunus_valkey_seconds", Histogram, "Time of requests to Valkey");
    if let Some(valkey) = valkey {
        family.histogram(&[], &valkey.times);
    }
}

fn write_disk(writer: &mut MetricsWriter, disk: &DiskMetrics) {
    let help = "Bytes that the gateway may still write to the data folder";
    writer.single("portunus_disk_free_bytes", Gauge, help, disk.free_bytes.get());
    let help = "Size of the file system of the data folder";
    writer.single("portunus_disk_size_bytes", Gauge, help, disk.total_bytes.get());
    let help = "Files that the file system of the data folder has room for";
    writer.single("portunus_disk_free_inodes", Gauge, help, disk.free_inodes.get());
}

fn write_configuration(
    writer: &mut MetricsWriter,
    reloads: &ReloadMetrics,
    scraped: &ScrapedValues,
) {
    let help = "Reloads of the configuration file, by result";
    let mut family = writer.family("portunus_config_reloads", Counter, help);
    family.sample(&[("result", "accepted")], reloads.accepted.get());
    family.sample(&[("result", "refused")], reloads.refused.get());
    let help = "1 if the last configuration that was read is in force";
    writer.single("portunus_config_good", Gauge, help, reloads.is_good.get());
    let help = "Unix time at which the configuration file was last put in force";
    let at = reloads.last_accepted.get();
    writer.single("portunus_config_loaded_timestamp_seconds", Gauge, help, at);
    let help = "Revision of the stored configuration in force, negative while it is read again";
    writer.single("portunus_config_revision", Gauge, help, scraped.config_revision);
}

fn write_certificate(writer: &mut MetricsWriter, certificate: &CertificateMetrics) {
    let CertificateMetrics { expires, is_good } = certificate;
    let help = "Unix time at which the certificate of the listener expires, 0 without one";
    writer.single("portunus_certificate_expiry_timestamp_seconds", Gauge, help, expires.get());
    let help = "1 unless the newest certificate files or the last order of one cannot be used";
    writer.single("portunus_certificate_good", Gauge, help, is_good.get());
}

fn write_process(metrics: &GatewayMetrics, writer: &mut MetricsWriter, scraped: &ScrapedValues) {
    let mut family = writer.family("portunus_build_info", Gauge, "Version of the program");
    family.sample(&[("version", scraped.version), ("commit", metrics.commit())], 1);
    let ProcessStats { cpu_seconds, resident_bytes, virtual_bytes, open_files, max_files, threads } =
        ProcessStats::read();
    if let Some(cpu) = cpu_seconds {
        writer.single("process_cpu_seconds", Counter, "Processor time used", cpu);
    }
    if let Some(bytes) = resident_bytes {
        writer.single("process_resident_memory_bytes", Gauge, "Memory in use", bytes);
    }
    if let Some(bytes) = virtual_bytes {
        writer.single("process_virtual_memory_bytes", Gauge, "Address space in use", bytes);
    }
    if let Some(files) = open_files {
        writer.single("process_open_fds", Gauge, "Open files, sockets included", files);
    }
    if let Some(files) = max_files {
        writer.single("process_max_fds", Gauge, "Limit of open files", files);
    }
    if let Some(threads) = threads {
        writer.single("process_threads", Gauge, "Threads", threads);
    }
    let help = "Unix time of the start";
    writer.single("process_start_time_seconds", Gauge, help, metrics.started.get());
}
