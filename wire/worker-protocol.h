/* clang-format off */
/* What the manager and its worker processes say to each other, as frames on the socketpair that is the worker's
 * descriptor 3. A worker runs with its owner's rights and may lie: the manager checks types, bounds and descriptors.
 *
 * The manager's first frame is the job. Objects have a string "job" (first frame), "command" (manager to worker) or
 * "event" (worker to manager). Paths are written with json_add_path().
 *
 * job "load"     descriptors: the root directory below which all paths are resolved.
 *   name, source, patterns?, excludes?, workers (0: chosen), chunkSize, mode, gid? (of the resident files), maxFiles,
 *   maxBytes?, view? (published by this worker; absent where the manager publishes), viewMode, viewParentMode? (of
 *   missing parents, which are made; absent: the parent must be there), pidFile?, logFile?
 *   -> event "selected": source (resolved, for people), fingerprint, files, bytes, largeFiles, packBytes, bufferBytes
 *                                            (the threads' buffers, and what the last pages of the files round up to)
 *   <- command "load" | command "quit"
 *   -> event "progress": bytesLoaded         (as often as every 100 ms, only when it grew)
 *   -> event "files": first                  one or more frames with up to 200 read-only sealed memfds each, in order:
 *                                            the manifest, the pack if packBytes > 0, each large file in the order
 *                                            of the manifest. first counts from 0, which is the manifest
 *   -> event "loaded": descriptors (how many came with the "files" events, the manifest among them), firstDescriptor
 *                                            (WORKER_FIRST_DESCRIPTOR), bytesLoaded, copyUSec
 *   <- command "publish"                     (also where there is no view to publish: then only phase 2 is entered)
 *   -> event "holding"                       the view is published, the second filter is active
 *   <- command "log": line                   appended to the log file, if there is one, with a newline; at any time
 *   <- command "stop"                        or end of file: the worker exits 0
 * job "publish"  the default view of the system scope. descriptors: root directory, manifest, pack (if any).
 *   name, view, viewMode, gid?, reader? (a uid that may read too), viewParentMode?, pid (of the holder)
 *                                                                   -> event "published"
 * job "probe"    opens every file of a view and compares it with the manifest. descriptors: root directory, manifest.
 *   name, view                                                      -> event "probed": files
 * job "remove"   after a death or a stop. descriptors: root directory.
 *   name, view? (removed if ours), pidFile? with pid (removed if it holds that pid), logFile? with line (appended to
 *   the file if there is one)                                       -> event "removed"
 * Any job, at any time:
 *   -> event "error": error (one of the errors of io.iloader.Manager without its prefix: SourceInvalid, SourceChanged,
 *      TooManyFiles, ViewConflict, LoadFailed, InsufficientMemory), message, path?, files?, maximum?; then it exits 1.
 * "quit" and "stop" mean the same at any time: the worker gives everything back and exits 0. Until it holds, it takes
 * its pid file and an empty log file that it made away with it; afterwards it can't, and a job "remove" does it.
 *
 * Numbers of resident descriptors: WORKER_FIRST_DESCRIPTOR + i, where i = 0 is the pack, if packBytes > 0, and the large
 * files follow in the order of the manifest. They are the manifest's "descriptor", and a view's links point at
 * /proc/PID/fd/ that number. Files below WORKER_PACK_LIMIT lie in the pack one after the other without gaps: packBytes is
 * the sum of their sizes and the pack's size. Where all of them are empty there is no pack, and their "descriptor" is
 * the first number after the resident ones. The manifest's header counts the resident descriptors; the manifest itself
 * isn't one of them and is not kept by the worker. */
#pragma once

#define WORKER_CONTROL_FD 3
/* Resident files are the worker's descriptors from here on, so that links stay the same but for the pid when
 * another worker takes over. */
#define WORKER_FIRST_DESCRIPTOR 64
#define WORKER_FDS_PER_FRAME    200
#define WORKER_FRAME_MAX        MIB(4)
/* Files below this share the pack. */
#define WORKER_PACK_LIMIT MIB(1)
