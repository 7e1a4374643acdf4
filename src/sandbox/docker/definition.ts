import { integer, optionalText, optionalTexts, type SettingValues } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';

interface DockerSettings {
  readonly docker: SettingValues<(typeof DOCKER)['settings']>;
}

export const DOCKER = {
  rootfs: 'image',
  settings: {
    host: optionalText({
      default: null,
      doc: 'Where the Docker daemon listens: `unix:///path`, or `tcp://127.0.0.1:port`. Unset, it is found as the `docker` command finds it: `DOCKER_HOST`, the current context, the usual socket. The daemon must be on this machine.',
      example: 'unix:///run/user/1000/docker.sock',
      isSocket: true,
    }),
    registries: optionalTexts({
      default: null,
      defaultText: 'the large public ones and those that `docker login` knows; without `enable_func_token_auth` all',
      pattern: /^[A-Za-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$/,
      shape: 'names of registries such as registry.example.com:5000 (docker.io is Docker Hub)',
      doc: 'The registries from which images may be pulled. A registry can send the Docker daemon to other addresses, so name those that you trust. One that is not named, where all may be asked, is asked without a token: it cannot send the daemon to a token server.',
      example: '[docker.io, registry.example.com:5000]',
    }),
    pullTimeoutMs: integer({
      default: 600_000,
      min: 1000,
      max: 86_400_000,
      unit: 'milliseconds',
      doc: 'How long an image that is not there may be pulled. A create that waits for it has its own time (`createTimeoutMs`); the pull goes on, and the next create finds what it has fetched.',
      example: '1800000',
    }),
  },
  async closedPaths() {
    const { daemonPaths } = await import('./daemon-paths.ts');
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
