#!/usr/bin/env node
import { run } from './cli/program.ts';
import { processIo } from './cli/shared/io.ts';
import { VERSION } from './version.ts';

/** Starts the command line. No other file ends the process. */

// A closed pipe (`rookery agent list | head -1`) is no error: the output has no reader any more.
const readerGone = new AbortController();
process.stdout.on('error', () => readerGone.abort());
process.stderr.on('error', () => readerGone.abort());

// A command may wait on timers and sockets that do not keep the process alive, such as pauses of a retry.
// Without this timer Node would end the process.
setInterval(() => undefined, 2 ** 30);

process.exit(await run(process.argv.slice(2), processIo(readerGone.signal), VERSION));
