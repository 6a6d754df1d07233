// One multiply-accumulate unit with a two's complement register that wraps or saturates.
`timescale 1ns / 1ps
`default_nettype none

module mac #(
    parameter A_BITS = 8,
    parameter B_BITS = 8,
    parameter P = 18,
    parameter A_SIGNED = 1,
    parameter B_SIGNED = 1,
    parameter SATURATE = 0
) (
    input wire clk,
    input wire clear,
    input wire enable,
    input wire [A_BITS-1:0] a,
    input wire [B_BITS-1:0] b,
    output reg signed [P-1:0] sum
);
  // Operands with a sign bit of their own, so that one multiplication serves both kinds.
  wire signed [A_BITS:0] x = {A_SIGNED ? a[A_BITS-1] : 1'b0, a};
  wire signed [B_BITS:0] y = {B_SIGNED ? b[B_BITS-1] : 1'b0, b};

  // Wide enough for the register plus one product.
  localparam PRODUCT = A_BITS + B_BITS + 2;
  localparam WIDE = (PRODUCT > P ? PRODUCT : P) + 1;
  wire signed [WIDE-1:0] product = x * y;
  wire signed [WIDE-1:0] next = sum + product;

  localparam signed [WIDE-1:0] MOST = {{(WIDE - P + 1) {1'b0}}, {(P - 1) {1'b1}}};
  localparam signed [WIDE-1:0] LEAST = ~MOST;

  always @(posedge clk) begin
    if (clear) sum <= 0;
    else if (enable) begin
      if (SATURATE && next > MOST) sum <= MOST[P-1:0];
      else if (SATURATE && next < LEAST) sum <= LEAST[P-1:0];
      else sum <= next[P-1:0];
    end
  end
endmodule

`default_nettype wire
