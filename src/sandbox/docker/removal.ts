import { unavailable } from '../../core/error.ts';
import { type Engine, statusOf } from './engine.ts';

/** Time limit for a removal that another request has begun. */
const REMOVAL_TIMEOUT_MS = 20_000;

/**
 * Removes a container with its anonymous volumes; kills it if it runs. Succeeds when the container does not
 * exist.
 */
export async function removeContainer(engine: Engine, container: string): Promise<void> {
  try {
    await engine.request('remove the container', docker =>
      docker.getContainer(container).remove({ force: true, v: true }),
    );
  } catch (error) {
    const status = statusOf(error);
    if (status === 404) return;
    // 409: another request is removing the container.
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
