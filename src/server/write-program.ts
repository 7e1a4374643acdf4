import { parentPort, workerData } from 'node:worker_threads';
import { serveWrites } from '../storage/writes/write-thread.ts';
import { WRITE_OPERATIONS } from './write-operations.ts';

/** Program of the thread that writes the database; `workerData` is the database's file. */
if (parentPort === null) throw new TypeError('write-program is the program of a thread');
serveWrites(parentPort, workerData as string, WRITE_OPERATIONS);
