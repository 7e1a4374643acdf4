#!/usr/bin/env node
import { processIo } from './cli/io.ts';
import { run } from './cli/program.ts';
import { VERSION } from './version.ts';

/** The only place that ends the process. */

// A reader that went away (`rookery agent list | head -1`) is no fault: there is nobody left to write to.
const readerGone = new AbortController();
process.stdout.on('error', () => readerGone.abort());
process.stderr.on('error', () => readerGone.abort());

process.exit(await run(process.argv.slice(2), processIo(readerGone.signal), VERSION));
