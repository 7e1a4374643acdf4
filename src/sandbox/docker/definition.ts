import { integer, optionalText, optionalTexts, type SettingValues } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';

interface DockerSettings {
  readonly docker: SettingValues<(typeof DOCKER)['settings']>;
}

/** Settings of the docker driver, and the function that creates it. */
export const DOCKER = {
  settings: {
    host: optionalText({
      default: null,
      doc: 'The Docker daemon: `unix:///path`, or `tcp://127.0.0.1:port`. Unset: `DOCKER_HOST`, the current context, the usual socket. The daemon must run on this machine.',
      example: 'unix:///run/user/1000/docker.sock',
      isSocket: true,
    }),
    registries: optionalTexts({
      default: null,
      defaultText: 'the large public ones and those that `docker login` knows; without `enable_func_token_auth` all',
      pattern: /^[A-Za-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$/,
      shape: 'names of registries such as registry.example.com:5000 (docker.io is Docker Hub)',
      doc: 'The registries from which images may be pulled. A registry can redirect the Docker daemon, so name only those that you trust. Unlisted registries, where allowed, are used without a token.',
      example: '[docker.io, registry.example.com:5000]',
    }),
    pullTimeoutMs: integer({
      default: 600_000,
      min: 1000,
      max: 86_400_000,
      unit: 'milliseconds',
      doc: 'How long the pull of an image may take. It continues after the `createTimeoutMs` of a create, and the next create uses its result.',
      example: '1800000',
    }),
  },
  async closedPaths() {
    const { daemonPaths } = await import('./endpoint.ts');
    return await daemonPaths();
  },
  async create({ settings, hasAuth, ...context }: DriverContext<DockerSettings>): Promise<SandboxDriver> {
    const { DockerDriver } = await import('./driver.ts');
    const { host, pullTimeoutMs, registries } = settings.docker;
    return new DockerDriver({
      ...context,
      host,
      pullTimeoutMs,
      registries: { named: registries, onlyNamed: registries !== null || hasAuth },
    });
  },
} as const satisfies DriverDefinition;
