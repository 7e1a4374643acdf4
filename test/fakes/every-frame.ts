import type { Frame, FrameReceiver } from '../../src/runtime/frames.ts';

/**
 * Returns a receiver that admits every frame. Suits the runtime's side of a channel, where frames have no
 * limit.
 */
export function everyFrame(take: (frame: Frame) => void): FrameReceiver {
  return { admit: () => true, receive: take, abandon: () => undefined };
}
