/** A reporter of Vitest: its JSON report says nothing of errors that no test caught, though they fail the run. */
import { writeFileSync } from 'node:fs';
import type { SerializedError } from 'vitest';
import type { Reporter } from 'vitest/node';
import type { VitestReport } from './claims.ts';

/** The variable with the path of the file that the errors are written to, as JSON. */
export const ERRORS_FILE = 'ROOKERY_TEST_ERRORS_FILE';

export default class ErrorsReporter implements Reporter {
  onTestRunEnd(_modules: unknown, unhandled: readonly SerializedError[]): void {
    const errors: VitestReport['errors'] = unhandled.map(error => ({
      file: typeof error.VITEST_TEST_PATH === 'string' ? error.VITEST_TEST_PATH : null,
      text: error.stack || `${error.name}: ${error.message}`,
    }));
    const path = process.env[ERRORS_FILE];
    if (path !== undefined) writeFileSync(path, JSON.stringify(errors));
  }
}
