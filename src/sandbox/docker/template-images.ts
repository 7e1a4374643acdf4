import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { CommittedImage, DriverImages, ImageOwner, SandboxSpec } from '../driver.ts';
import { containerName } from './container.ts';
import { type Engine, LABEL_INSTALLATION, statusOf } from './engine.ts';
import { isImageName, missingImage, TEMPLATE_PREFIX } from './images.ts';

/** Labels of images that hold templates of tenants. Containers inherit the labels of their image. */
const LABEL_OWNER = 'rookery.template.installation';
const LABEL_TENANT = 'rookery.template.tenant';
const LABEL_BUILD = 'rookery.template.build';
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;
/** Time limit of a commit, whose length depends on the files that the build has written. */
const COMMIT_TIMEOUT_MS = 600_000;

export interface TemplateImagesOptions {
  /** Runs `work` with a connection to the daemon. */
  readonly connect: <T>(work: (engine: Engine) => Promise<T>) => Promise<T>;
  /** Returns the id of this installation, and makes one if it has none. */
  readonly installation: () => Promise<string>;
  readonly dockerDir: string;
}

/** The images of the daemon that tenants may name, and those that hold templates of tenants. */
export class TemplateImages implements DriverImages {
  readonly #options: TemplateImagesOptions;

  constructor(options: TemplateImagesOptions) {
    this.#options = options;
  }

  async has(reference: string): Promise<boolean> {
    if (!isImageName(reference)) return false;
    return await this.#options.connect(async engine => {
      const image = await findImage(engine, reference);
      // An id is no name: its beginning could be guessed, and images of other tenants found.
      return image !== null && !image.id.startsWith(`sha256:${reference}`) && image.tenant === undefined;
    });
  }

  async commit(instanceId: string, { tenant, build }: ImageOwner): Promise<string> {
    const installation = await this.#options.installation();
    const repo = `${TEMPLATE_PREFIX}${installation}`;
    const container = containerName(instanceId);
    // An empty value keeps a container that a person starts from the image out of the driver's lists.
    const own = { [LABEL_OWNER]: installation, [LABEL_TENANT]: tenant, [LABEL_BUILD]: build, [LABEL_INSTALLATION]: '' };
    const options = { _query: { container, repo, tag: build, pause: true }, _body: { Labels: own } };
    await this.#options.connect(engine =>
      engine.request(
        'store the files of the template',
        docker => docker.getContainer(container).commit(options),
        COMMIT_TIMEOUT_MS,
      ),
    );
    return `${repo}:${build}`;
  }

  async committed(): Promise<readonly CommittedImage[]> {
    // Without a file this service has never used a daemon.
    const installation = await readFile(installationFile(this.#options.dockerDir), 'utf8').catch(() => '');
    if (installation.trim() === '') return [];
    const filters = { label: [`${LABEL_OWNER}=${installation.trim()}`] };
    const listed = await this.#options.connect(engine =>
      engine.request('list images', docker => docker.listImages({ filters })),
    );
    return listed.map(({ Id: id, Labels: labels, RepoTags: names }) => ({
      id,
      name: names?.[0] ?? '',
      build: labels[LABEL_BUILD] ?? '',
    }));
  }

  async remove(id: string): Promise<boolean> {
    try {
      await this.#options.connect(engine => engine.request('remove an image', docker => docker.getImage(id).remove()));
      return true;
    } catch (error) {
      const status = statusOf(error);
      if (status === 404) return true;
      if (status === 409) return false;
      throw error;
    }
  }
}

/** Returns the file with the id of this installation. */
export function installationFile(dockerDir: string): string {
  return join(dockerDir, 'installation');
}

/**
 * Fails with `failed_precondition` if the image holds a template, except for a sandbox of its tenant that has
 * accounts. The error is that of a missing image.
 */
export async function refuseForeignTemplate(engine: Engine, spec: SandboxSpec): Promise<void> {
  const image = await findImage(engine, spec.rootfs.imageUrl);
  if (image?.tenant === undefined || (spec.hasAccounts === true && image.tenant === spec.tenant)) return;
  throw missingImage(spec.rootfs.imageUrl);
}

/** Returns an image, and the tenant whose template it holds; null if the daemon does not have it. */
async function findImage(
  engine: Engine,
  reference: string,
): Promise<{ readonly id: string; readonly tenant: string | undefined } | null> {
  // No path of a request can have such a text, and the daemon has no image of such a name.
  if (!VISIBLE_ASCII.test(reference)) return null;
  try {
    const { Id: id, Config: config } = await engine.request('look for an image', docker =>
      docker.getImage(reference).inspect(),
    );
    const labels = (config as { readonly Labels?: Readonly<Record<string, string>> | null } | null)?.Labels;
    return { id, tenant: labels?.[LABEL_TENANT] };
  } catch (error) {
    const status = statusOf(error);
    if (status === 404 || status === 400) return null;
    throw error;
  }
}
