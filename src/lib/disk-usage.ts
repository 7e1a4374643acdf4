import { ServiceError } from '../core/error.ts';
import { execFile } from './child-process.ts';

const MEASURE_TIMEOUT_MS = 120_000;

/**
 * Measures the disk space of a directory in bytes. Uses `du`, which handles any depth and follows no link.
 */
export function diskUsage(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const env = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
    execFile('du', ['-s', '-x', '-B1', '--', path], { timeout: MEASURE_TIMEOUT_MS, env }, (error, stdout) => {
      const bytes = /^(\d+)\t/.exec(stdout)?.[1];
      if (bytes !== undefined) resolve(Number(bytes));
      else reject(error ?? new ServiceError('internal', 'du has said nothing'));
    });
  });
}
