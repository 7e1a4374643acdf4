import { unavailable } from '../../core/error.ts';
import { type Engine, statusOf } from './engine.ts';

/** How long a removal that somebody else has begun may take. */
const REMOVAL_TIMEOUT_MS = 20_000;

/** Removes a container, killing it when it runs, with its anonymous volumes. Absent = success. */
export async function removeContainer(engine: Engine, container: string): Promise<void> {
  try {
    await engine.request('remove the container', docker =>
      docker.getContainer(container).remove({ force: true, v: true }),
    );
  } catch (error) {
    const status = statusOf(error);
    if (status === 404) return;
    // 409: it is being removed already.
    if (status !== 409) throw error;
    await waitRemoved(engine, container);
  }
}

async function waitRemoved(engine: Engine, container: string): Promise<void> {
  try {
    await engine.request(
      'wait for the removal of the container',
      docker => docker.getContainer(container).wait({ condition: 'removed' }),
      REMOVAL_TIMEOUT_MS,
    );
  } catch (error) {
    if (statusOf(error) === 404) return;
    throw unavailable(`the container is still being removed: ${container}`, { cause: error });
  }
}
